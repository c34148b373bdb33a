"""Pictures of the driving world: known things at known pixels, the same on every run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from flashdrive_ros.world import layout  # noqa: E402
from flashdrive_ros.world.renderer import make_painter, render  # noqa: E402
from flashdrive_ros.world.rig import RIG  # noqa: E402
from flashdrive_ros.world.scene import Scenes, make_scenes  # noqa: E402
from flashdrive_ros.world.views import Views  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Small arrays on a busy machine: threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def bare_scene() -> Scenes:
    """A scene by day with one vehicle, number 1, and nothing else above the ground."""
    scenes = make_scenes([12])
    vehicle = torch.zeros_like(scenes.vehicle)
    vehicle[:, 1] = True
    return replace(
        scenes,
        vehicle=vehicle,
        vehicle_kind=torch.full_like(scenes.vehicle_kind, layout.CAR),
        vehicle_colour=torch.full_like(scenes.vehicle_colour, layout.COLOUR_NAMES.index("yellow")),
        vehicle_size=torch.tensor([4.0, 2.0, 1.5]).expand_as(scenes.vehicle_size),
        parked=torch.zeros_like(scenes.parked),
        walker=torch.zeros_like(scenes.walker),
        junction=torch.zeros_like(scenes.junction),
        objects=torch.zeros_like(scenes.objects),
        dusk=torch.zeros_like(scenes.dusk),
    )


def view(forward: float, left: float, braking: bool = False) -> Views:
    """The ego at the origin, vehicle 1's rear end `forward` m before and `left` m beside the ego's rear axle."""
    vehicles = torch.full((1, layout.VEHICLES, 3), 900.0)
    vehicles[0, 1] = torch.tensor([forward + layout.REAR_OVERHANG_M, left, 0.0])
    brakes = torch.full((1, layout.VEHICLES), braking)
    scene = torch.zeros(1, dtype=torch.int64)
    return Views(scene, scene, torch.zeros(1, 3), vehicles, brakes, torch.zeros(1, layout.WALKERS))


def painted(pictures: torch.Tensor, camera: int) -> torch.Tensor:
    """[96, 160] bool: pixels of a camera that a vehicle changed."""
    empty = render(make_painter(bare_scene()), view(900.0, 900.0))
    place = [entry.index for entry in RIG].index(camera)
    return (pictures[0, place].int() - empty[0, place].int()).abs().sum(-1) > 20


@pytest.mark.parametrize(("forward", "left"), [(21.7, 0.0), (41.7, 0.5)])
def test_rear_of_a_car_ahead_is_where_the_telephoto_projects_it(forward: float, left: float) -> None:
    pixels = painted(render(make_painter(bare_scene()), view(forward, left)), 6)
    distance = forward - 1.7  # the camera is 1.7 m before the rear axle, 1.5 m up
    focal = 160 / math.radians(30)
    columns = pixels.any(0).nonzero()[:, 0]
    # Mounting error of at most half a degree: 0.008 rad * 306 px = 2.5 px, and half a pixel of rounding.
    assert columns.min().item() == pytest.approx(80 - focal * math.atan2(left + 1, distance), abs=3.2)
    assert columns.max().item() + 1 == pytest.approx(80 - focal * math.atan2(left - 1, distance), abs=3.2)
    width = focal * (math.atan2(left + 1, distance) - math.atan2(left - 1, distance))
    assert len(columns) == pytest.approx(width, abs=1.1)
    middle = pixels[:, int(columns.float().mean())].nonzero()[:, 0]
    # Top at the camera's height: on the horizon, row 44. Bottom 1.5 m below it.
    assert middle.min().item() == pytest.approx(44, abs=2.1)
    assert len(middle) == pytest.approx(focal * 1.5 / distance, abs=1.6)


def test_car_on_the_left_is_seen_by_the_left_camera_and_not_by_the_right() -> None:
    pictures = render(make_painter(bare_scene()), view(6.0, 9.0))
    assert painted(pictures, 0).any()
    assert not painted(pictures, 2).any()


def test_brake_lights_are_bright_red_at_forty_metres_in_the_telephoto() -> None:
    def red(braking: bool) -> int:
        picture = render(make_painter(bare_scene()), view(41.7, 0.0, braking))[0, 3].int()
        return int(((picture[..., 0] > 190) & (picture[..., 1] < 110)).sum())

    assert red(False) == 0
    assert red(True) >= 4


def test_traffic_light_shows_its_colour_to_the_ego() -> None:
    # One junction, 40 m ahead; 7 s green at least from the offset on.
    seeds = range(200)
    scenes = make_scenes(seeds)
    row = int(((scenes.control[:, 0] == layout.LIGHTS) & scenes.junction[:, 0] & ~scenes.dusk).nonzero()[0])
    scenes = make_scenes([row])
    scenes = replace(
        scenes, vehicle=torch.zeros_like(scenes.vehicle), light_times=torch.tensor([[[10.0, 8.0, 0.0]]]).expand(1, 3, 3)
    )
    station = scenes.stop_station[0, layout.ROUTE, 0] - 25.0
    ego = scenes.path[:, layout.ROUTE, int(station), :3]
    place = torch.zeros(1, dtype=torch.int64)
    away = torch.full((1, layout.VEHICLES, 3), 900.0)
    nobody = torch.zeros(1, layout.VEHICLES, dtype=torch.bool)
    found = []
    for step in (50, 115, 200):  # green until 10 s, amber until 13 s, then red
        shown = Views(place, place + step, ego, away, nobody, torch.zeros(1, layout.WALKERS))
        picture = render(make_painter(scenes), shown)[0, 3].int()
        red, green, blue = picture.unbind(-1)
        counts = [
            ((green > 190) & (red < 120)).sum(),
            ((red > 200) & (green > 140) & (blue < 110)).sum(),
            ((red > 190) & (green < 90)).sum(),
        ]
        found.append([bool(count >= 6) for count in counts])
    assert found == [[True, False, False], [False, True, False], [False, False, True]]


def test_pictures_do_not_depend_on_the_chunk_they_are_rendered_in() -> None:
    scenes = make_scenes([1, 2])
    painter = make_painter(scenes)
    scene = torch.tensor([0, 1, 0])
    ego = scenes.path[scene, layout.ROUTE, 60, :3]
    vehicles = torch.full((3, layout.VEHICLES, 3), 900.0)
    shown = Views(
        scene, torch.tensor([0, 5, 9]), ego, vehicles, torch.zeros(3, layout.VEHICLES).bool(), torch.zeros(3, 4)
    )
    together, alone = render(painter, shown, 3).int(), render(painter, shown, 1).int()
    assert ((together - alone).abs() <= 2).float().mean() > 0.999
    assert torch.equal(render(painter, shown, 3), render(painter, shown, 3))


def test_ground_is_below_the_horizon_and_sky_above() -> None:
    picture = render(make_painter(bare_scene()), view(900.0, 900.0))[0, 1].float()
    assert (picture[:38, :, 2] > picture[:38, :, 0]).all()  # blue sky
    assert (picture[60:, 60:100].amax(-1) - picture[60:, 60:100].amin(-1)).median() < 20  # grey road
