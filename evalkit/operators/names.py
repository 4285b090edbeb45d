"""What people write instead of an operator's name, or of a JSON type's."""

from __future__ import annotations

from typing import Final

LITERAL: Final = "$literal"
MODIFIERS: Final = {"$abs": "$approx", "$rel": "$approx"}
TYPE_NAMES: Final = ("string", "number", "integer", "boolean", "array", "object", "null")

# From MongoDB, JSON Schema, Python and other tools.
INSTEAD: Final = {
    "$gte": "$ge",
    "$lte": "$le",
    "$min": "$ge",
    "$minimum": "$ge",
    "$max": "$le",
    "$maximum": "$le",
    "$range": "$between",
    "$in": "$one_of",
    "$or": "$one_of",
    "$any_of": "$one_of",
    "$and": "$all_of",
    "$all": "$all_of",
    "$nin": "{$not: {$one_of: [...]}}",
    "$nor": "{$not: {$one_of: [...]}}",
    "$equals": "$eq",
    "$neq": "$ne",
    "$exists": "{$any: true} or {$absent: true}",
    "$present": "$any",
    "$missing": "$absent",
    "$optional": "{$one_of: [{$absent: true}, ...]}",
    "$size": "$len",
    "$length": "$len",
    "$count": "$len",
    "$match": "$regex",
    "$matches": "$regex",
    "$pattern": "$regex",
    "$prefix": "$starts_with",
    "$suffix": "$ends_with",
    "$every": "$each",
    "$items": "$each",
    "$set": "$unordered",
    "$multiset": "$unordered",
    "$datetime": "$date",
    "$close_to": "$approx",
    "$near": "$approx",
    "$instance_of": "$type",
    "$includes": "$contains",
    "$has": "$contains",
    "$raw": "$literal",
}

TYPES_INSTEAD: Final = {
    "str": "string",
    "text": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "list": "array",
    "tuple": "array",
    "dict": "object",
    "mapping": "object",
    "map": "object",
    "none": "null",
    "nonetype": "null",
}
