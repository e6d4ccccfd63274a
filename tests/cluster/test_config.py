import asyncio
import base64
import json
import ssl
import stat

import pytest

from fairlead.cluster.kubernetes.auth import Auth
from fairlead.cluster.kubernetes.config import Config, ConfigError, ExecPlugin, from_file, load


def write(path, **user):
    path.write_text(
        json.dumps(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "team"}}],
                "clusters": [{"name": "k", "cluster": {"server": "https://localhost:1/", "certificate-authority": "ca.crt"}}],
                "users": [{"name": "u", "user": user}],
            }
        )
    )
    return path


def test_paths_are_relative_to_the_file(tmp_path):
    config = from_file(write(tmp_path / "config", token="t", **{"client-certificate-data": base64.b64encode(b"PEM").decode()}))
    assert config.server == "https://localhost:1"
    assert config.ca_file == str(tmp_path / "ca.crt")
    assert (config.token, config.cert_data, config.namespace) == ("t", b"PEM", "team")


@pytest.mark.parametrize("text", ["", "[]", "a: [", "{current-context: x}", "\x00", "contexts: 3\ncurrent-context: a"])
def test_what_is_no_kubeconfig_is_said_so(tmp_path, text):
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(ConfigError, match="config"):
        from_file(path)


def test_no_cluster_at_all(tmp_path, monkeypatch):
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="--kubeconfig"):
        load()


def test_certificates_of_older_tools_are_accepted_by_every_python(monkeypatch):
    """From 3.13 on the default is strict: the authority of many clusters has no Authority Key Identifier, and Go needs none."""
    made = ssl.create_default_context

    def strict(**given):
        context = made(**given)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)
    context = Config("https://x").ssl_context()
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


async def test_a_rotated_token_file_is_read_again(tmp_path):
    file = tmp_path / "token"
    file.write_text("one\n")
    now = 0.0
    auth = Auth(Config("https://x", token_file=str(file)), clock=lambda: now)
    await auth.refresh()
    assert auth.token == "one"
    file.write_text("two")
    await auth.refresh()
    assert auth.token == "one", "not on every request"
    now = 31.0
    assert not auth.fresh
    await auth.refresh()
    assert auth.token == "two"
    auth.reject()
    assert not auth.fresh


def plugin(tmp_path, script):
    path = tmp_path / "plugin"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    return Config("https://x", exec_plugin=ExecPlugin(str(path), "client.authentication.k8s.io/v1", env=(("WHO", "me"),)))


async def test_an_exec_plugin_gives_a_token_until_it_expires(tmp_path):
    status = '{"token": "\'$WHO-$(echo "$KUBERNETES_EXEC_INFO" | grep -c ExecCredential)\'", "expirationTimestamp": "2026-01-01T00:10:00Z"}'
    config = plugin(tmp_path, f"echo '{{\"status\": {status}}}'")
    now = 1767225600.0
    auth = Auth(config, clock=lambda: now)
    await auth.refresh()
    assert auth.token == "me-1"
    assert auth.fresh
    now += 9 * 60 + 1
    assert not auth.fresh


@pytest.mark.parametrize(
    ("script", "message"), [("exit 3", "failed"), ("echo nonsense", "no ExecCredential"), ("echo '{}'", "without status")]
)
async def test_a_bad_plugin_is_named(tmp_path, script, message):
    with pytest.raises(ConfigError, match=message):
        await Auth(plugin(tmp_path, script)).refresh()


async def test_a_missing_plugin_is_named():
    with pytest.raises(ConfigError, match="cannot be run"):
        await Auth(Config("https://x", exec_plugin=ExecPlugin("/no/such/plugin", "v1"))).refresh()


def test_refreshing_is_serial(tmp_path):
    config = plugin(tmp_path, 'echo x >> "$0.count"; echo \'{"status": {"token": "t"}}\'')

    async def many():
        auth = Auth(config)
        await asyncio.gather(*(auth.refresh() for _ in range(5)))

    asyncio.run(many())
    assert (tmp_path / "plugin.count").read_text() == "x\n"
