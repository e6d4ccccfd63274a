"""The functions of CEL in Kubernetes 1.36 that the library lacks or declares otherwise: which types they take and give.

Identities of overloads are those of cel-go and of Kubernetes' libraries, since costs depend on them. The functions of
`cel`, `optional`, `sets` and `lists` are the library's own; Kubernetes' functions for named formats are not here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fairlead.expressions.messages import CIDR, IP, QUANTITY, SEMVER, URL

_COMPARABLE: Final = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_SUMMABLE: Final = ("int", "uint", "double", "duration")
_NUMBERS: Final = {"int": "int64", "uint": "uint64", "double": "double"}
_SPELLED: Final = {"duration": "google.protobuf.Duration", "timestamp": "google.protobuf.Timestamp"}

Declared = dict[str, list[tuple[str, str, str]]]
"""Function -> its overloads: id, signature, type of the result."""


def _of_lists() -> Declared:
    def each(function: str, kinds: Iterable[str], identity: str, result: str) -> list[tuple[str, str, str]]:
        found = []
        for kind in kinds:
            spelled = _SPELLED.get(kind, kind)
            of_result = spelled if result == "" else result
            found.append((identity.format(kind), f"list<{spelled}>.{function}()", of_result))
        return found

    return {
        "isSorted": each("isSorted", _COMPARABLE, "list_{0}_is_sorted_bool", "bool"),
        "sum": each("sum", _SUMMABLE, "list_{0}_sum_{0}", ""),
        "max": each("max", _COMPARABLE, "list_{0}_max_{0}", ""),
        "min": each("min", _COMPARABLE, "list_{0}_min_{0}", ""),
        "indexOf": [
            ("list_a_index_of_int", "list<~A>.indexOf(~A)", "int"),
            ("string_index_of_string", "string.indexOf(string)", "int"),
            ("string_index_of_string_int", "string.indexOf(string,int)", "int"),
        ],
        "lastIndexOf": [
            ("list_a_last_index_of_int", "list<~A>.lastIndexOf(~A)", "int"),
            ("string_last_index_of_string", "string.lastIndexOf(string)", "int"),
            ("string_last_index_of_string_int", "string.lastIndexOf(string,int)", "int"),
        ],
    }


def _of_strings() -> Declared:
    """The string functions of CEL's extension of version 2, which shares two names with those of lists."""
    return {
        "charAt": [("string_char_at_int", "string.charAt(int)", "string")],
        "join": [
            ("list_join", "list<string>.join()", "string"),
            ("list_join_string", "list<string>.join(string)", "string"),
        ],
        "lowerAscii": [("string_lower_ascii", "string.lowerAscii()", "string")],
        "upperAscii": [("string_upper_ascii", "string.upperAscii()", "string")],
        "replace": [
            ("string_replace_string_string", "string.replace(string,string)", "string"),
            ("string_replace_string_string_int", "string.replace(string,string,int)", "string"),
        ],
        "split": [
            ("string_split_string", "string.split(string)", "list<string>"),
            ("string_split_string_int", "string.split(string,int)", "list<string>"),
        ],
        "substring": [
            ("string_substring_int", "string.substring(int)", "string"),
            ("string_substring_int_int", "string.substring(int,int)", "string"),
        ],
        "trim": [("string_trim", "string.trim()", "string")],
        "format": [("string_format", "string.format(list<dyn>)", "string")],
        "strings.quote": [("strings_quote", "strings.quote(string)", "string")],
    }


def _of_numbers() -> Declared:
    """Comparisons, also between numbers of different types, which the library's own declarations lack."""
    found: Declared = {}
    names = {"_<_": "less", "_<=_": "less_equals", "_>_": "greater", "_>=_": "greater_equals"}
    for function, name in names.items():
        overloads = []
        for left, spelled in _NUMBERS.items():
            for right, other in _NUMBERS.items():
                identity = f"{name}_{spelled}" if left == right else f"{name}_{spelled}_{other}"
                overloads.append((identity, f"{function}({left},{right})", "bool"))
        for kind in ("bool", "string", "bytes", "duration", "timestamp"):
            spelled = _SPELLED.get(kind, kind)
            overloads.append((f"{name}_{kind}", f"{function}({spelled},{spelled})", "bool"))
        found[function] = overloads
    return found


DECLARATIONS: Final[Declared] = {
    **_of_numbers(),
    **_of_lists(),
    **_of_strings(),
    "includes": [("dra_includes_dyn_dyn", "dyn.includes(dyn)", "bool")],
    "quantity": [("string_to_quantity", "quantity(string)", QUANTITY)],
    "isQuantity": [("is_quantity_string", "isQuantity(string)", "bool")],
    "sign": [("quantity_sign", f"sign({QUANTITY})", "int")],
    "isGreaterThan": [
        ("quantity_is_greater_than", f"{QUANTITY}.isGreaterThan({QUANTITY})", "bool"),
        ("semver_is_greater_than", f"{SEMVER}.isGreaterThan({SEMVER})", "bool"),
    ],
    "isLessThan": [
        ("quantity_is_less_than", f"{QUANTITY}.isLessThan({QUANTITY})", "bool"),
        ("semver_is_less_than", f"{SEMVER}.isLessThan({SEMVER})", "bool"),
    ],
    "compareTo": [
        ("quantity_compare_to", f"{QUANTITY}.compareTo({QUANTITY})", "int"),
        ("semver_compare_to", f"{SEMVER}.compareTo({SEMVER})", "int"),
    ],
    "asApproximateFloat": [("quantity_get_float", f"{QUANTITY}.asApproximateFloat()", "double")],
    "asInteger": [("quantity_get_int", f"{QUANTITY}.asInteger()", "int")],
    "isInteger": [("quantity_is_integer", f"{QUANTITY}.isInteger()", "bool")],
    "add": [
        ("quantity_add", f"{QUANTITY}.add({QUANTITY})", QUANTITY),
        ("quantity_add_int", f"{QUANTITY}.add(int)", QUANTITY),
    ],
    "sub": [
        ("quantity_sub", f"{QUANTITY}.sub({QUANTITY})", QUANTITY),
        ("quantity_sub_int", f"{QUANTITY}.sub(int)", QUANTITY),
    ],
    "semver": [
        ("string_to_semver", "semver(string)", SEMVER),
        ("string_bool_to_semver", "semver(string,bool)", SEMVER),
    ],
    "isSemver": [
        ("is_semver_string", "isSemver(string)", "bool"),
        ("is_semver_string_bool", "isSemver(string,bool)", "bool"),
    ],
    "major": [("semver_major", f"{SEMVER}.major()", "int")],
    "minor": [("semver_minor", f"{SEMVER}.minor()", "int")],
    "patch": [("semver_patch", f"{SEMVER}.patch()", "int")],
    "find": [("string_find_string", "string.find(string)", "string")],
    "findAll": [
        ("string_find_all_string", "string.findAll(string)", "list<string>"),
        ("string_find_all_string_int", "string.findAll(string,int)", "list<string>"),
    ],
    "url": [("string_to_url", "url(string)", URL)],
    "isURL": [("is_url_string", "isURL(string)", "bool")],
    "getScheme": [("url_get_scheme", f"{URL}.getScheme()", "string")],
    "getHost": [("url_get_host", f"{URL}.getHost()", "string")],
    "getHostname": [("url_get_hostname", f"{URL}.getHostname()", "string")],
    "getPort": [("url_get_port", f"{URL}.getPort()", "string")],
    "getEscapedPath": [("url_get_escaped_path", f"{URL}.getEscapedPath()", "string")],
    "getQuery": [("url_get_query", f"{URL}.getQuery()", "map<string,list<string>>")],
    "ip": [("string_to_ip", "ip(string)", IP), ("cidr_ip", f"{CIDR}.ip()", IP)],
    "isIP": [("is_ip", "isIP(string)", "bool")],
    "ip.isCanonical": [("ip_is_canonical", "ip.isCanonical(string)", "bool")],
    "family": [("ip_family", f"{IP}.family()", "int")],
    "isUnspecified": [("ip_is_unspecified", f"{IP}.isUnspecified()", "bool")],
    "isLoopback": [("ip_is_loopback", f"{IP}.isLoopback()", "bool")],
    "isLinkLocalMulticast": [("ip_is_link_local_multicast", f"{IP}.isLinkLocalMulticast()", "bool")],
    "isLinkLocalUnicast": [("ip_is_link_local_unicast", f"{IP}.isLinkLocalUnicast()", "bool")],
    "isGlobalUnicast": [("ip_is_global_unicast", f"{IP}.isGlobalUnicast()", "bool")],
    "cidr": [("string_to_cidr", "cidr(string)", CIDR)],
    "isCIDR": [("is_cidr", "isCIDR(string)", "bool")],
    "containsIP": [
        ("cidr_contains_ip_string", f"{CIDR}.containsIP(string)", "bool"),
        ("cidr_contains_ip_ip", f"{CIDR}.containsIP({IP})", "bool"),
    ],
    "containsCIDR": [
        ("cidr_contains_cidr_string", f"{CIDR}.containsCIDR(string)", "bool"),
        ("cidr_contains_cidr", f"{CIDR}.containsCIDR({CIDR})", "bool"),
    ],
    "prefixLength": [("cidr_prefix_length", f"{CIDR}.prefixLength()", "int")],
    "masked": [("cidr_masked", f"{CIDR}.masked()", CIDR)],
    "string": [
        ("string_to_string", "string(string)", "string"),
        ("int64_to_string", "string(int)", "string"),
        ("uint64_to_string", "string(uint)", "string"),
        ("double_to_string", "string(double)", "string"),
        ("bool_to_string", "string(bool)", "string"),
        ("bytes_to_string", "string(bytes)", "string"),
        ("duration_to_string", "string(google.protobuf.Duration)", "string"),
        ("timestamp_to_string", "string(google.protobuf.Timestamp)", "string"),
        ("ip_to_string", f"string({IP})", "string"),
        ("cidr_to_string", f"string({CIDR})", "string"),
    ],
}
REPLACED: Final = ("_<_", "_<=_", "_>_", "_>=_", "string")
"""Functions of the language itself, of which the declarations above have more overloads."""
