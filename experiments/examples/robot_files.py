"""Robot files that come with packages of `pip install "jaxsoa[test]"`; any URDF or MJCF file of yours does as well."""

from importlib.metadata import files

PANDA = next(str(f.locate()) for f in files("example-robot-data") or () if f.name == "panda.urdf")
HUMANOID = next(str(f.locate()) for f in files("gymnasium") or () if f.name == "humanoid.xml")
