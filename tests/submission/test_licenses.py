"""Licenses of scripts: shared resources of the members, together as many as are asked for."""

import pytest

from fairlead.submission.directives import DirectiveError, asked, options_of
from fairlead.submission.jobs import Profile, ai_job


def read(*lines):
    return asked(options_of("\n".join(["#!/bin/bash", *lines, "true"])))


@pytest.mark.parametrize(
    ("lines", "shared"),
    [
        (["#SBATCH --licenses=lustre:4"], {"lustre": 4}),
        (["#SBATCH -L lustre"], {"lustre": 1}),
        (["#SBATCH --nodes=2 -L lustre:4,scratch:2,lustre:2"], {"lustre": 3, "scratch": 1}),
        (["#SBATCH --licenses=lustre:4", "#SBATCH --licenses=nas:1"], {"nas": 1}),
        (["#SBATCH --licenses=lustre:0"], {}),
    ],
)
def test_members_take_together_what_the_job_asks_for(lines, shared):
    found = read(*lines)
    assert (found.shared, found.left_out) == (shared, [])
    made = ai_job("train", "ns", found, Profile({"image": "train"}), ["true"], scripted=True)
    assert made["spec"]["roles"][0].get("sharedResources", {}) == shared


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("#SBATCH --licenses=a:1|b:1", "line 2: --licenses: 'a:1|b:1': alternatives are not supported"),
        ("#SBATCH --licenses=matlab@server:1", "line 2: --licenses: 'matlab@server:1' is not NAME or NAME:COUNT"),
        ("#SBATCH --licenses=Lustre", "'Lustre' is not NAME or NAME:COUNT"),
        ("#SBATCH --licenses=lustre:-1", "is not NAME or NAME:COUNT"),
        ("#SBATCH --nodes=2 --licenses=lustre:3", "3 of lustre cannot be divided among 2 equal members"),
    ],
)
def test_what_cannot_be_given_is_refused(line, told):
    with pytest.raises(DirectiveError) as refused:
        read(line)
    assert told in str(refused.value)
