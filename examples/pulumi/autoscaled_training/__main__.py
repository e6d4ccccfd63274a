"""Training workers, 2 of them, and up to 5 while they use more than half of the CPU that they ask for."""

import pulumi

from fairlead.pulumi import AutoscaledDeployment

config = pulumi.Config()

training = AutoscaledDeployment(
    "training",
    image=config.get("image") or "python:3.11-slim",
    command=["python", "-c", "while True: sum(range(10**6))"],
)

pulumi.export("deployment", training.deployment_name)
pulumi.export("autoscaler", training.autoscaler_name)
