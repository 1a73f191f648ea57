#!/usr/bin/env python3
"""Makes scripts/solar-days.csv: a clear, a mixed and an overcast day of a solar plant, every five minutes.

The sun and the plant are modelled with pvlib; the clouds are drawn from a fixed seed, and no weather was measured:
- Sun: Golden, Colorado (39.74 N, 105.18 W, 1829 m), three times 21 June 2024, simplified Solis clear sky.
- Clouds: the global irradiance is the clear one times a clear-sky index. It is 1 on the clear day. On the mixed day
  clouds come and go (a Markov chain; index 0.95 to 1.05 in the sun, 0.25 to 0.55 under a cloud). On the overcast day it
  is a slow walk between 0.10 and 0.35. Direct and diffuse parts are by Erbs, the plane of the modules by Hay and Davies.
- Plant: 30 degrees to the south, PVWatts modules and inverter. Its rating is 1: as much as all block servers draw.

Usage: python3 -m venv V; V/bin/pip install pvlib==0.16.1; V/bin/python scripts/solar-days.py > scripts/solar-days.csv
"""

import numpy
import pandas
import pvlib

SEED = 20240621
STEP_MINUTES = 5
DAYS = ["clear", "mixed", "overcast"]


def clear_sky_index(day, count, dice):
    """Share of the clear sky's irradiance at each step of a day."""
    if day == "clear":
        return numpy.ones(count)
    if day == "mixed":
        index, cloudy = numpy.empty(count), False
        for step in range(count):
            # Clouds stay for a quarter of an hour on average, gaps for 20 minutes.
            cloudy = dice.random() < (2 / 3 if cloudy else 1 / 4)
            index[step] = dice.uniform(0.25, 0.55) if cloudy else dice.uniform(0.95, 1.05)
        return index
    walk = numpy.cumsum(dice.normal(0, 0.02, count))
    return 0.225 + 0.125 * numpy.sin(walk * 2)


def fractions():
    place = pvlib.location.Location(39.74, -105.18, "Etc/GMT+7", 1829)
    dice = numpy.random.default_rng(SEED)
    day = pandas.date_range("2024-06-21", periods=24 * 60 // STEP_MINUTES, freq=f"{STEP_MINUTES}min", tz=place.tz)
    # The value of a line holds until the next one: it is that of the middle.
    middles = day + pandas.Timedelta(minutes=STEP_MINUTES / 2)
    sun = place.get_solarposition(middles)
    clear = place.get_clearsky(middles, model="simplified_solis", solar_position=sun)
    extra = pvlib.irradiance.get_extra_radiation(middles)
    for name in DAYS:
        ghi = clear["ghi"] * clear_sky_index(name, len(day), dice)
        if name == "clear":
            dni, dhi = clear["dni"], clear["dhi"]
        else:
            parts = pvlib.irradiance.erbs(ghi, sun["zenith"], middles)
            dni, dhi = parts["dni"], parts["dhi"]
        plane = pvlib.irradiance.get_total_irradiance(
            30, 180, sun["apparent_zenith"], sun["azimuth"], dni, ghi, dhi, dni_extra=extra, model="haydavies"
        )["poa_global"].fillna(0)
        cell = pvlib.temperature.faiman(plane, temp_air=25, wind_speed=2)
        watts = pvlib.pvsystem.pvwatts_dc(plane, cell, pdc0=1.2, gamma_pdc=-0.003)
        # The rating of the inverter, at which it clips, is 1.
        yield from pvlib.inverter.pvwatts(watts, pdc0=1 / 0.96, eta_inv_nom=0.96).fillna(0).clip(0, 1)


def main():
    print("# A clear, a mixed and an overcast day of a solar plant: modelled, not measured. Made by scripts/solar-days.py.")
    print("seconds,fraction")
    for step, fraction in enumerate(fractions()):
        print(f"{step * STEP_MINUTES * 60},{fraction:.3f}")


if __name__ == "__main__":
    main()
