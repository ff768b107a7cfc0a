"""The shapes of the API's answers. Each names the generation of the collection that it came from."""

from typing import Literal

from pydantic import BaseModel, Field

from vicinal.retrieval.collection import Match
from vicinal.retrieval.index.store import Item
from vicinal.retrieval.serve.errors import text

By = Literal["image", "item", "vector", "class"]


class Answer(BaseModel):
    generation: int = Field(description="The generation of the collection that this whole answer came from.")


class ItemAnswer(BaseModel):
    id: int = Field(description="Stays with the thing through all generations.")
    path: str = Field(description="Where it lies below the folder that was indexed.")
    label: str | None = Field(description="Its class, where one is known.")
    metadata: dict[str, str]

    @classmethod
    def of(cls, item: Item) -> "ItemAnswer":
        metadata = {text(key): text(value) for key, value in item.metadata.items()}
        label = None if item.label is None else text(item.label)
        return cls(id=item.id, path=text(item.path), label=label, metadata=metadata)


class MatchAnswer(ItemAnswer):
    distance: float
    matches: bool | None = Field(description="Whether it is near enough; null where there is no threshold.")

    @classmethod
    def found(cls, match: Match, threshold: float | None) -> "MatchAnswer":
        near = None if threshold is None else match.distance <= threshold
        return cls(**ItemAnswer.of(match.item).model_dump(), distance=match.distance, matches=near)


class ThresholdAnswer(BaseModel):
    """The distance beyond which a neighbor is no match."""

    distance: float
    false_match_rate: float | None = Field(
        description="Share of pairs of different validation classes that lie nearer; null where the request named it."
    )


class LimitsAnswer(BaseModel):
    k: int
    listed: int
    upload_bytes: int
    upload_pixels: int
    formats: list[str]


class About(Answer):
    """What is served."""

    title: str
    preset: str | None
    data: str | None
    vicinal: str
    kind: Literal["images", "features"] = Field(description="What the run embeds; only images can be uploaded.")
    pictures: bool = Field(description="Whether the items have pictures to show.")
    items: int
    classes: int
    dim: int
    metric: str
    threshold: ThresholdAnswer | None
    limits: LimitsAnswer


class ClassCount(BaseModel):
    label: str
    items: int


class Classes(Answer):
    classes: list[ClassCount]


class OneItem(Answer):
    item: ItemAnswer


class Items(Answer):
    total: int = Field(description="How many there are in all pages together.")
    offset: int
    items: list[ItemAnswer]


class Found(Answer):
    """Neighbors, nearest first."""

    by: By
    query: ItemAnswer | None = Field(description="The item searched from, which is not among the matches.")
    threshold: ThresholdAnswer | None
    no_match: bool | None = Field(description="True where nothing lies within the threshold; null without one.")
    matches: list[MatchAnswer]
    embedding_seconds: float | None = Field(description="Decoding and embedding of an uploaded picture.")
    search_seconds: float


class Vector(BaseModel):
    """A search by vector."""

    # Beyond these bounds a float32 sum of squares could overflow; no embedding comes near.
    vector: list[float] = Field(min_length=1, max_length=65_536, description="An embedding of this run's model.")


class MapAnswer(Answer):
    """The collection in the plane; columns, one entry for each point."""

    state: Literal["ready", "computing"]
    total: int = Field(description="Items of the collection; the map may show fewer.")
    method: str = Field(description="How positions came about.")
    classes: list[str]
    colours: list[str] = Field(description="One for each class.")
    ids: list[int]
    x: list[float] = Field(description="From 0 to 1, rightwards.")
    y: list[float] = Field(description="From 0 to 1, downwards.")
    classed: list[int] = Field(description="Positions in `classes`; -1 for an item without one.")


class Line(BaseModel):
    name: str
    x: list[float]
    y: list[float]
    low: list[float] | None
    high: list[float] | None


class ChartAnswer(BaseModel):
    key: str
    title: str
    unit: Literal["number", "share", "falling"]
    axis: str
    mark: float | None = Field(description="Where the kept model stands on the axis.")
    caption: str = Field(description="How to read it, in the method's words.")
    lines: list[Line]


class HardClass(BaseModel):
    label: str
    records: int
    recall: float = Field(description="Share of its test queries whose first neighbor is of this class.")
    items: int = Field(description="How many of this class the collection holds.")


class ConfusedPair(BaseModel):
    label: str
    taken_for: str
    share: float
    queries: int


class Hardness(Answer):
    """What was hard in training and what is hard in the result, as the run wrote it."""

    charts: list[ChartAnswer]
    worst: list[HardClass]
    confused: list[ConfusedPair]
    figures: int = Field(description="Pictures of the method's inside, on the report's page.")
