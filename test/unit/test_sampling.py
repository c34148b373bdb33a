"""Token choice against a plain numpy nucleus, and the streams of random numbers it draws from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flashdrive_ros.model.config import NANO, ModelConfig
from flashdrive_ros.reasoning.sampling import flow_noise, token_noise

torch = pytest.importorskip("torch")

CONFIG = replace(
    NANO,
    text=replace(NANO.text, vocabulary=40),
    tokens=replace(NANO.tokens, cot_start=20, cot_end=21, future_start=22, trajectory_first=30, trajectory_count=10),
    sampling_candidates=0,
)
TOKENS = CONFIG.tokens
ALLOWED = 30
WORD = 3


def choose(logits, row_ids, noise, temperature: float, top_p: float, config: ModelConfig = CONFIG) -> np.ndarray:
    """Chosen ids of rows with `logits` [n, 40] and own tokens `row_ids`."""
    from flashdrive_ros.model import stages

    chosen = stages.choose(
        config,
        torch.tensor(np.asarray(logits, np.float32)),
        torch.tensor(np.asarray(row_ids, np.int64)),
        torch.tensor(np.asarray(noise, np.float32)),
        torch.tensor([temperature, top_p]),
    )
    return chosen.numpy()


def logits(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 2, (rows, 40))


def nucleus(values: np.ndarray, temperature: float, top_p: float, candidates: int = 40) -> np.ndarray:
    """Probability of each id: softmax, tokens in falling order while the mass before them is at most top_p."""
    values = np.where(np.arange(40) < ALLOWED, values, -np.inf)
    order = np.argsort(-values)[:candidates]
    mass = np.exp((values[order] - values[order[0]]) / temperature)
    mass /= mass.sum()
    kept, before = np.zeros(40), 0.0
    for token, probability in zip(order, mass, strict=True):
        if before <= top_p:
            kept[token] = probability
        before += probability
    return kept / kept.sum()


def chi_square_limit(degrees: int) -> float:
    """The value exceeded once in a thousand (Wilson and Hilferty)."""
    return degrees * (1 - 2 / (9 * degrees) + 3.09 * np.sqrt(2 / (9 * degrees))) ** 3


def test_temperature_zero_is_argmax_whatever_the_noise():
    values = logits(50)
    noise = np.random.default_rng(1).uniform(0, 1, 50)
    expected = values[:, :ALLOWED].argmax(1)
    np.testing.assert_array_equal(choose(values, [WORD] * 50, noise, 0.0, 0.5), expected)
    np.testing.assert_array_equal(choose(values, [WORD] * 50, 1 - noise, 0.0, 1.0), expected)


@pytest.mark.parametrize("temperature", [0.3, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("top_p", [0.3, 0.9, 0.98, 1.0])
@pytest.mark.parametrize("candidates", [0, 12])
def test_sampled_tokens_have_the_distribution_of_the_nucleus(temperature: float, top_p: float, candidates: int):
    count = 20_000
    values = logits(1, seed=7)[0]
    noise = np.random.default_rng(3).uniform(0, 1, count)
    config = replace(CONFIG, sampling_candidates=candidates)
    chosen = choose(np.tile(values, (count, 1)), [WORD] * count, noise, temperature, top_p, config)
    probability = nucleus(values, temperature, top_p, candidates or 40)
    found = np.bincount(chosen, minlength=40)
    assert not found[probability == 0].any()
    # tokens too rare to count are one class
    common = probability * count >= 5
    classes = np.append(probability[common], probability[~common].sum()) * count
    counts = np.append(found[common], found[~common].sum())
    counts, classes = counts[classes > 0], classes[classes > 0]
    if len(classes) > 1:
        assert ((counts - classes) ** 2 / classes).sum() < chi_square_limit(len(classes) - 1)


def test_the_token_that_crosses_top_p_is_kept():
    # Masses 0.5, 0.3, 0.2: before them lie 0, 0.5 and 0.8.
    values = np.full(40, -100.0)
    values[[5, 9, 2]] = np.log([0.5, 0.3, 0.2])
    for top_p, kept in ((0.4, {5}), (0.6, {5, 9}), (0.79, {5, 9}), (0.9, {5, 9, 2})):
        noise = np.linspace(0.001, 0.999, 200)
        assert set(choose(np.tile(values, (200, 1)), [WORD] * 200, noise, 1.0, top_p)) == kept


def test_extreme_noise_picks_the_ends_of_the_nucleus():
    values = np.full(40, -100.0)
    values[[5, 9, 2]] = np.log([0.5, 0.3, 0.2])
    smallest, largest = 0.5 / 2**23, 1 - 0.5 / 2**23
    assert list(choose([values, values], [WORD] * 2, [smallest, largest], 1.0, 0.9)) == [5, 2]


def test_equal_noise_and_close_logits_give_equal_tokens():
    # The reason for one noise a position: a nearly unchanged scene repeats its text.
    values = logits(200)
    noise = np.random.default_rng(2).uniform(0, 1, 200)
    first = choose(values, [WORD] * 200, noise, 0.6, 0.98)
    second = choose(values + 1e-4 * logits(200, seed=9), [WORD] * 200, noise, 0.6, 0.98)
    assert (first == second).mean() > 0.98


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_reasoning_never_starts_with_its_end(temperature: float):
    values = logits(100)
    values[:, TOKENS.cot_end] = 50
    noise = np.random.default_rng(1).uniform(0, 1, 100)
    assert TOKENS.cot_end not in choose(values, [TOKENS.cot_start] * 100, noise, temperature, 1.0)
    assert set(choose(values, [WORD] * 100, noise, temperature, 1.0)) == {TOKENS.cot_end}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_trajectory_bins_are_never_reasoning(temperature: float):
    values = logits(100)
    values[:, ALLOWED:] += 50
    noise = np.random.default_rng(1).uniform(0, 1, 100)
    assert choose(values, [WORD] * 100, noise, temperature, 1.0).max() < ALLOWED


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_future_start_always_follows_cot_end(temperature: float):
    noise = np.random.default_rng(1).uniform(0, 1, 100)
    chosen = choose(logits(100), [TOKENS.cot_end] * 100, noise, temperature, 0.9)
    assert set(chosen) == {TOKENS.future_start}


def test_half_precision_logits_are_sampled_in_single():
    from flashdrive_ros.model import stages

    values = torch.tensor(logits(20), dtype=torch.bfloat16)
    arguments = (torch.full((20,), WORD), torch.linspace(0.1, 0.9, 20), torch.tensor([0.6, 0.9]))
    coarse = stages.choose(CONFIG, values, *arguments)
    assert torch.equal(coarse, stages.choose(CONFIG, values.float(), *arguments))


# random numbers


def test_token_noise_repeats_and_its_start_does_not_depend_on_its_length():
    np.testing.assert_array_equal(token_noise(5, 100), token_noise(5, 100))
    np.testing.assert_array_equal(token_noise(5, 100)[:37], token_noise(5, 37))
    assert not np.isin(token_noise(5, 100), token_noise(6, 100)).any()


def test_token_noise_is_uniform_and_never_an_end_of_the_interval():
    values = token_noise(0, 100_000)
    assert values.dtype == np.float32
    assert values.min() > 0
    assert values.max() < 1
    counts = np.bincount((values * 20).astype(int), minlength=20)
    assert ((counts - 5000) ** 2 / 5000).sum() < chi_square_limit(19)


def test_flow_noise_is_a_function_of_seed_and_window_alone():
    first = flow_noise(3, 8, (2, 64, 2))
    flow_noise(3, 9, (2, 64, 2))
    token_noise(3, 10)
    np.testing.assert_array_equal(flow_noise(3, 8, (2, 64, 2)), first)
    np.testing.assert_array_equal(flow_noise(3, 8, (1, 64, 2))[0], first[0])


def test_flow_noise_of_other_windows_and_seeds_has_nothing_in_common():
    one = flow_noise(3, 8, (6, 64, 2)).reshape(-1)
    for other in (flow_noise(3, 9, (6, 64, 2)), flow_noise(3, 7, (6, 64, 2)), flow_noise(4, 8, (6, 64, 2))):
        assert np.isin(one, other).mean() < 0.01
        assert abs(np.corrcoef(one, other.reshape(-1))[0, 1]) < 0.15


def test_flow_noise_is_standard_normal():
    values = np.concatenate([flow_noise(0, window, (4, 64, 2)).reshape(-1) for window in range(200)])
    count = len(values)
    assert values.dtype == np.float32
    # four standard errors of mean and variance; fourth moment 3 with variance 96 / n
    assert abs(values.mean()) < 4 / np.sqrt(count)
    assert abs(values.var() - 1) < 4 * np.sqrt(2 / count)
    assert abs((values**4).mean() - 3) < 4 * np.sqrt(96 / count)
