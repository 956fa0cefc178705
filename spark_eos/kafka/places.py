"""Where a new query starts, and where a batch query ends: the options turned into offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone

from spark_eos.errors import OptionError
from spark_eos.kafka.listing import Listing
from spark_eos.kafka.offsets import BoundsByPartition, to_json
from spark_eos.protocol.positions import Offsets, TopicPartition
from spark_eos.source_options import SourceOptions
from spark_eos.source_values import EARLIEST, LATEST, ByTime, Place


class Places:
    """Turns options into offsets.

    Args:
        options: the source's options.
        listing: where to look up what the options do not say.
    """

    def __init__(self, options: SourceOptions, listing: Listing) -> None:
        self._options, self._listing = options, listing

    def start(self, bounds: BoundsByPartition, latest: Offsets | None = None) -> Offsets:
        """Where a new query starts in each partition. It may be an offset that is not there any more.

        Args:
            bounds: what the partitions hold.
            latest: what "latest" means, where that was fixed already (AvailableNow); else the end of the partition.

        Raises:
            OptionError: the option names other partitions than there are (Spark's rule), a partition has no record
                of the time asked for, or the group has committed nothing there.
        """
        return self._resolve(self._options.start, bounds, latest or {})

    def end(self, bounds: BoundsByPartition) -> Offsets:
        """Where a batch query ends in each partition.

        Raises:
            OptionError: as of `start`.
        """
        return self._resolve(self._options.end, bounds, {})

    def _resolve(self, place: Place, bounds: BoundsByPartition, latest: Offsets) -> Offsets:
        ends = {key: latest.get(key, found.end) for key, found in bounds.items()}
        if isinstance(place.where, dict):
            _check_names(place.option, place.where.keys(), bounds.keys())
        if isinstance(place, ByTime):
            return self._at(place, ends)
        if place.where == "group":
            return self._committed(bounds)
        word = {"earliest": EARLIEST, "latest": LATEST}
        asked = place.where if isinstance(place.where, dict) else dict.fromkeys(bounds, word[place.where])
        special = {EARLIEST: {key: found.earliest for key, found in bounds.items()}, LATEST: ends}
        return {key: special[offset][key] if offset in special else offset for key, offset in asked.items()}

    def _at(self, place: ByTime, ends: Offsets) -> Offsets:
        millis = place.where if isinstance(place.where, dict) else dict.fromkeys(ends, place.where)
        found = self._listing.at(millis)
        none = [key for key in sorted(millis) if found.get(key) is None]
        if none and not place.or_latest:
            topic, partition = none[0]
            when = datetime.fromtimestamp(millis[none[0]] / 1000, timezone.utc).isoformat()
            raise OptionError(
                f"option {place.option}: topic {topic}, partition {partition} has no record at or after {when}"
                + (f" (nor have {len(none) - 1} other partitions)" if none[1:] else ""),
                do="Give an earlier time, or set startingOffsetsByTimestampStrategy to latest.",
            )
        # "found" may be beyond the end: it was looked up later.
        return {key: ends[key] if (at := found.get(key)) is None else min(at, ends[key]) for key in sorted(millis)}

    def _committed(self, bounds: BoundsByPartition) -> Offsets:
        group = self._options.group
        assert group is not None  # checked with the options
        found = self._listing.committed(group, bounds)
        filled = [key for key, held in bounds.items() if held.earliest < held.high_watermark]
        unknown = [key for key in filled if found.get(key) is None]
        if unknown:
            # Never guessed: where the committed offset has expired, the beginning would process records twice.
            known = {key: EARLIEST if (offset := found.get(key)) is None else offset for key in bounds}
            raise OptionError(
                f"option startingOffsets: group {group} has no committed offset for {_names(unknown)}",
                do="Check kafka.group.id. If nothing of these partitions was processed, or doing it again does no "
                f"harm, start them at the earliest (-2): startingOffsets={_text(known)}",
            )
        return {key: held.earliest if (offset := found.get(key)) is None else offset for key, held in bounds.items()}


def _check_names(option: str, named: Iterable[TopicPartition], there: Iterable[TopicPartition]) -> None:
    if set(named) != set(there):
        raise OptionError(
            f"option {option} names the partitions {_names(named)}, and there are {_names(there)}",
            do="Name every partition; in startingOffsets, use -1 (latest) or -2 (earliest) for those that you don't "
            "care about.",
        )


def _names(keys: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(keys)) or "none"


def _text(offsets: Mapping[TopicPartition, int]) -> str:
    return str(to_json(dict(offsets))).replace("'", '"')
