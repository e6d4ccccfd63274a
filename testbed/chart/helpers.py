"""`templates/_helpers.tpl`: the named templates of values that are computed, as methods of `Values` compute them in Python."""

from __future__ import annotations

import json
from collections.abc import Mapping

from fairlead.api.names import DEFAULT_SCHEDULERS, FIRST_RELEASE
from fairlead.install import Values
from fairlead.install.accounts import usernames
from fairlead.install.values import SYSTEM
from fairlead.scheduler import configuration

DEFAULTS = " ".join(json.dumps(each) for each in DEFAULT_SCHEDULERS)
"""The scheduler names of the first release, as arguments of `list`."""


def text() -> str:
    """The file: a section for values, and one for how they are written in CEL."""
    values = {
        "trusted": _trusted(),
        "schedulers": _SCHEDULERS,
        "configuration": _CONFIGURATION,
        "requests": _requests(),
        "reached.scheduler": _API_SERVER + _PORTS,
        "reached.operator": _API_SERVER + _PROMETHEUS + _DATABASE + _PORTS,
    }
    return "\n".join(
        (
            _section("Values that are not used as they are.", values),
            _section("A text in CEL, and a list of them without its brackets.", {"quoted": _QUOTED, "listed": _LISTED}),
        )
    )


def _section(about: str, templates: Mapping[str, str]) -> str:
    """Named templates, each by its name without the chart's, below a comment."""
    definitions = (f'{{{{- define "fairlead.{name}" -}}}}\n{body}{{{{- end }}}}\n' for name, body in templates.items())
    return f"{{{{- /* {about} */}}}}\n" + "\n".join(definitions)


def _trusted() -> str:
    """The users that make pods for others: the accounts of a release outside the system's namespace, and those that are given."""
    accounts = " ".join(f'(printf "{name}" $.Release.Namespace $.Values.name)' for name in usernames("%s", "%s"))
    return f"""\
{{{{- $accounts := list -}}}}
{{{{- if ne $.Release.Namespace "{SYSTEM}" -}}}}
{{{{- $accounts = list {accounts} -}}}}
{{{{- end -}}}}
{{{{- concat $accounts $.Values.trusted | toJson -}}}}
"""


_SCHEDULERS = f"""\
{{{{- $names := list -}}}}
{{{{- range $.Values.configuration.profiles -}}}}
{{{{- $names = append $names .schedulerName -}}}}
{{{{- end -}}}}
{{{{- $names | default (list {DEFAULTS}) | toJson -}}}}
"""
_CONFIGURATION = f"""\
{{{{- $file := deepCopy $.Values.configuration -}}}}
{{{{- if ne $.Values.name "{FIRST_RELEASE}" -}}}}
{{{{- $file = set $file "name" $.Values.name -}}}}
{{{{- end -}}}}
{{{{- $file = set $file "apiVersion" "{configuration.API_VERSION}" -}}}}
{{{{- set $file "kind" "{configuration.KIND}" | toPrettyJson -}}}}
"""


def _requests() -> str:
    """What both processes request: all that is given or, as Helm would merge the two otherwise, the default."""
    requests = " ".join(json.dumps(word) for pair in Values(image="any").requests.items() for word in pair)
    return f"""\
{{{{- if kindIs "map" $.Values.requests -}}}}
{{{{- $.Values.requests | toJson -}}}}
{{{{- else -}}}}
{{{{- dict {requests} | toJson -}}}}
{{{{- end -}}}}
"""


_API_SERVER = """\
{{- $ports := list -}}
{{- range $.Values.apiServerPorts -}}
{{- $ports = append $ports (int .) -}}
{{- end -}}
"""
"""Begins the list of ports that a process reaches."""
_PROMETHEUS = """\
{{- with $.Values.prometheus -}}
{{- $url := urlParse . -}}
{{- $port := regexFind ":[0-9]+$" $url.host | trimPrefix ":" -}}
{{- $ports = append $ports (int ($port | default (ternary "443" "80" (eq $url.scheme "https")))) -}}
{{- end -}}
"""
_DATABASE = """\
{{- if $.Values.history -}}
{{- if $.Values.history.secretName -}}
{{- $ports = append $ports (int ($.Values.history.port | default 5432)) -}}
{{- end -}}
{{- end -}}
"""
_PORTS = "{{- uniq $ports | toJson -}}\n"
"""Ends it."""
_QUOTED = """\
'{{ . | replace "\\\\" "\\\\\\\\" | replace "'" "\\\\'" }}'
"""
_LISTED = """\
{{- range $index, $each := . -}}{{ if $index }}, {{ end }}{{ include "fairlead.quoted" $each }}{{- end -}}
"""
