"""Annotations of ours are refused at admission exactly where the scheduler could not read them."""

import random
import re
import time
import urllib.error

import pytest

from fairlead.api import spans
from fairlead.api.quantity import QuantityError
from fairlead.cluster.pod_specs import gpu_fraction
from testbed.objects import ai_job, job, pod

pytestmark = pytest.mark.e2e

FRACTION, LIMIT, EXPECTED = (f"fairlead.dev/{name}" for name in ("gpu-fraction", "time-limit", "expected-duration"))
PLAIN_FRACTIONS = """0.5 .5 5. 0.25 +0.5 -0.5 0 1 1.0 0.999 0.999999999 1e-3 5e-1 500m 0.5k 1u 1n 0.1e1 0.5E 1E-1 1e-40 inf
nan 1e999999999 0x1 half 0,5 0.5.0 0.5Gi 0.0000000001Gi 1Mi --1 1m 999m 1000m 0.00 +.5 00.5"""
FRACTIONS = [*PLAIN_FRACTIONS.split(), "", " 0.5", "0.5 ", "\u0660.5", "0" * 70]
PLAIN_SPANS = """90s 30m 24h 7d 1h30m 1.5h 100ms 0s 1d1d 36500d 36501d 36500d1s 90 s 1 h1 1h3 -1h 1H 1w 1.h .5h 1e3s 1,5h 1us
99999999999999999999s 1h30m15s200ms"""
SPANS = [*PLAIN_SPANS.split(), "", " 1h", "1h ", "1h 3m", "1s" * 50, "1s" * 51]


def core_reads(read, text):
    try:
        read(text)
    except QuantityError:
        return False
    return True


def accepted(plane, key, text):
    """Whether the API server takes a pod with this annotation; as the administrator, whom the rule binds as well."""
    asked = pod("spelled", gpus=0, annotations={key: text})
    try:
        plane.request("POST", "/api/v1/namespaces/mal/pods?dryRun=All", asked)
    except urllib.error.HTTPError as error:
        if error.code == 422:
            return False
        raise
    return True


@pytest.mark.parametrize(
    ("key", "read", "texts", "letters"),
    [
        (FRACTION, gpu_fraction, FRACTIONS, "01259.+-eEmkMGi"),
        (LIMIT, spans.seconds, SPANS, "01259.smhd"),
        (EXPECTED, spans.seconds, SPANS, "01259.smhd"),
    ],
)
def test_what_the_scheduler_reads_is_accepted_and_nothing_else(plane, mallory, key, read, texts, letters):
    dice = random.Random(key)
    # The policy refuses exponents of three digits: Kubernetes' parser of quantities, which it uses, cannot be given them.
    texts = [text for text in texts if not re.search(r"[eE][+-]?\d{3}", text)]
    texts = [*texts, *("".join(dice.choices(letters, k=dice.randint(1, 6))) for _ in range(80))]
    wrong = {text: core_reads(read, text) for text in texts if accepted(plane, key, text) is not core_reads(read, text)}
    assert not wrong, "the core's answers that the API server does not share"


def test_an_exponent_beyond_reason_is_refused_at_once(plane, mallory):
    """Computing 10 to the power of 999999999 would take the API server minutes."""
    began = time.monotonic()
    for text in ("1e999999999", "1e-999999999", "1E+0999999999"):
        assert not accepted(plane, FRACTION, text)
    assert time.monotonic() - began < 20


def test_templates_are_read_as_pods_are(mallory):
    for manifest in (job("bad"), ai_job("bad")):
        template = manifest["spec"].get("template") or manifest["spec"]["roles"][0]["template"]
        template["metadata"] = {"annotations": {FRACTION: "banana"}}
        assert '"banana" is not a GPU fraction' in mallory.create(manifest)
    cron = {"schedule": "0 3 * * *", "jobTemplate": {"spec": job("x")["spec"]}}
    cron["jobTemplate"]["spec"]["template"]["metadata"]["annotations"] = {LIMIT: "soon"}
    manifest = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "bad"}, "spec": cron}
    assert '"soon" is not a duration' in mallory.create(manifest)
    odd = ai_job("odd")
    odd["spec"]["roles"][0]["template"]["metadata"] = {"annotations": {LIMIT: 3}}
    assert "is not a duration" in mallory.create(odd)


def test_a_running_pod_cannot_be_made_unreadable(mallory):
    assert mallory.create(pod("waits", annotations={LIMIT: "1h"})) == ""
    assert '"banana" is not' in mallory.patch("pod", "waits", {"metadata": {"annotations": {FRACTION: "banana"}}})
    assert '"maybe" is not true or false' in mallory.patch(
        "pod", "waits", {"metadata": {"labels": {"fairlead.dev/elastic-replica": "maybe"}}}
    )
    assert mallory.patch("pod", "waits", {"metadata": {"annotations": {LIMIT: "2h"}}}) == "", "it waits, and may ask for more"
