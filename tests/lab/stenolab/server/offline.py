"""Answers for what a server without a network cannot look up."""

from __future__ import annotations

import importlib
from typing import Any

SPOT = "-spot"  # how the cloud's names of spot sizes end


def install(cloud_url: str) -> None:
    """The cloud's address, images without a registry, and spot machines, which this backend has none of."""
    configurator = importlib.import_module("dstack._internal.core.backends.amddevcloud.configurator")
    configurator.AMDDevCloudConfigurator.API_URL = cloud_url
    _skip_the_registry()
    _skip_the_catalog()
    _offer_spot()


def _skip_the_registry() -> None:
    image = importlib.import_module("dstack._internal.server.services.docker").ImageConfig
    jobs: Any = importlib.import_module("dstack._internal.server.services.jobs.configurators.base")
    if hasattr(jobs, "_get_image_config_and_cpu_architectures"):
        architectures = {importlib.import_module("gpuhunt").CPUArchitecture.X86}
        jobs._get_image_config_and_cpu_architectures = lambda _image, _auth: (image(), architectures)
    else:  # before 0.20
        jobs._get_image_config = lambda _image, _auth: image()


def _skip_the_catalog() -> None:
    try:
        scheduled: Any = importlib.import_module("dstack._internal.server.background.scheduled_tasks")
    except ImportError:  # before 0.20 it is fetched when first needed, which here is never
        return

    async def preload() -> None:
        """The catalog of all other clouds' offers is not fetched."""

    scheduled.preload_offers_catalog = preload


def _offer_spot() -> None:
    provider = importlib.import_module("gpuhunt.providers.digitalocean").DigitalOceanProvider
    genuine = provider.fetch_offers

    def fetch_offers(self: Any) -> list[Any]:
        offers = list(genuine(self))
        for offer in offers:
            offer.spot = offer.instance_name.endswith(SPOT)
        return offers

    provider.fetch_offers = fetch_offers
