"""The scenarios of administrators on the simulated cluster, over HTTP."""

import base64
import json
import ssl
import urllib.request

import pytest
import yaml

from tests.cli.test_cluster_commands import Box
from tests.scenarios.runner import FILES, Story


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_scenario(tmp_path, file):
    with Box(tmp_path, nodes=0) as box:
        config = yaml.safe_load(box.kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        trusted = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}", "Content-Type": "application/json"}

        def request(method, path, body=None):
            data = None if body is None else json.dumps(body).encode()
            asked = urllib.request.Request(cluster["server"] + path, data, headers, method=method)
            with urllib.request.urlopen(asked, timeout=30, context=trusted) as reply:
                return json.loads(reply.read() or b"null")

        Story(file, request, lambda node: box.create(node, namespace="default")).run()
