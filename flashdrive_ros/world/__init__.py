"""The procedural driving world: maps, traffic, an expert driver with captions, pictures, and a closed loop.

Everything is batched torch over scenes and the same on CPU and GPU. A scene is its seed. World frame: metres, z up, the
main road leads along +x, traffic keeps to the right. Start with `scene.make_scenes` and `simulation.simulate`.
"""
