"""Spread that volumes forbid: a pod goes where its volume can be reached."""

from __future__ import annotations

from collections.abc import Iterator

from rebalancer.findings.code import FindingCode, finding
from rebalancer.findings.paste import yaml_of
from rebalancer.findings.subject import Subject
from rebalancer.findings.survey import Survey
from rebalancer.model.finding import Finding, Severity
from rebalancer.model.storage import PersistentVolume

HOSTNAME = "kubernetes.io/hostname"


def check(subject: Subject, survey: Survey) -> Iterator[Finding]:
    """Findings of one workload."""
    if not subject.mounted or not subject.template.spread:
        return
    volumes = list(_volumes(subject, survey))
    keys = [_keys(v) for _, v in volumes]
    for c in survey.constraints(subject.template):
        key = c.written.topology_key
        pinned = sum(1 for k in keys if any(_narrows(own, key) for own in k))
        if not pinned:
            continue
        excess = 0
        if survey.has_nodes:
            common = subject.common
            meant = next((w.meant for w in survey.constraints(common) if w.index == c.index), c.meant)
            group = survey.group(common, meant)
            excess = group.excess(group.counts_once(survey.state))
        skewed = f", which exceeds maxSkew by {excess}" if excess else ""
        yield finding(
            Severity.WARNING if excess else Severity.INFO,
            FindingCode.PINNED_BY_ZONAL_VOLUMES,
            subject,
            f"{pinned} of its {subject.replicas} pods mount volumes that only some domains of {key} reach: "
            f"replacements return to where their volumes are, so no eviction mends the constraint{skewed}",
            _remedy(survey, [v for (_, v), k in zip(volumes, keys, strict=True) if k]),
            c.field,
        )


def _volumes(subject: Subject, survey: Survey) -> Iterator[tuple[str, PersistentVolume]]:
    """(pod, volume) of the bound claims; one volume of a pod that has several."""
    for pod in subject.mounted:
        for name in pod.template.claims:
            claim = survey.snapshot.claims.get(f"{pod.namespace}/{name}")
            volume = survey.snapshot.volumes.get(claim.spec.volume_name) if claim is not None else None
            if volume is not None and _keys(volume):
                yield pod.name, volume
                break


def _keys(volume: PersistentVolume) -> frozenset[str]:
    """Node labels that decide which nodes reach the volume."""
    affinity = volume.spec.node_affinity
    required = affinity.required if affinity is not None else None
    found = {e.key for t in (required.node_selector_terms if required else ()) for e in t.match_expressions}
    # The zone labels of a volume itself are obeyed too (VolumeZone).
    found |= {k for k in volume.metadata.labels if k.endswith(("/zone", "/region"))}
    return frozenset(found)


def _narrows(volume_key: str, topology_key: str) -> bool:
    """Whether a volume's label ties it to domains of a key.

    A node is in one domain of every key; drivers have zone labels of their own, topology.<driver>/zone.
    """
    if volume_key in (topology_key, HOSTNAME):
        return True
    return volume_key.rpartition("/")[2] == topology_key.rpartition("/")[2]


def _remedy(survey: Survey, volumes: list[PersistentVolume]) -> str:
    """A class that makes volumes where the scheduler has put the pod, if that is what was missing."""
    for volume in volumes:
        known = survey.snapshot.storage_classes.get(volume.spec.storage_class_name)
        if known is not None and known.volume_binding_mode == "Immediate":
            made = yaml_of(
                {
                    "apiVersion": "storage.k8s.io/v1",
                    "kind": "StorageClass",
                    "metadata": {"name": f"{known.metadata.name}-wait"},
                    "provisioner": known.provisioner,
                    "volumeBindingMode": "WaitForFirstConsumer",
                }
            )
            return f"# for new volumes: made in the zone that the scheduler chooses for the pod\n{made}"
    return (
        "# move the data of a pod in the fullest domain, then delete its claim and the pod: it gets a new one"
    )
