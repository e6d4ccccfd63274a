"""Pods with claims that run from the beginning, on the devices that a test gives them."""

import msgspec

from fairlead.core.dra.model import DeviceTemplate
from fairlead.core.model.pods import DeviceUse
from tests.builders import pod, spec
from tests.core.claim_stream import ClaimStream
from tests.core.test_device_claims import DRIVER, held


def lodge(stream: ClaimStream, name, asks, host, devices, shared="", driver=DRIVER, **more):
    """A pod runs on a host since the beginning, with these devices by a claim of a template, or by a claim that others name."""
    template = DeviceTemplate(f"ns/t{stream.template(asks)}", asks)
    stream.state.claims.upsert(template)
    use = DeviceUse("own", f"ns/{shared}") if shared else DeviceUse("own", "", template.key)
    if shared and use.key not in stream.claims:
        stream.share(shared, asks)
    stream.lengths[name] = 1e6
    stream.create(pod(name, spec_=spec(gpus=0, cpu=100), claims=(use,), **{"started": 0.0, **more}))
    made = stream.pods[f"uid-{name}"]
    (key,) = (each.key for each in made.claims)
    claim = stream.claims[key]
    found = held(host, *devices)
    chosen = (msgspec.structs.replace(each, device=msgspec.structs.replace(each.device, driver=driver)) for each in found.devices)
    allocation = claim.allocation or msgspec.structs.replace(found, devices=tuple(chosen))
    stream.write(msgspec.structs.replace(claim, allocation=allocation, users=(*claim.users, made.uid)))
    bound = stream.pods[made.uid] = msgspec.structs.replace(made, node=host)
    stream.where[made.uid] = host
    stream.state.upsert_pod(bound)
