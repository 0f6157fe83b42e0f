"""Robot files: readers to descriptions on the host, with nothing but NumPy and an XML parser, and writers."""

from jaxsoa.io.urdf import read_urdf as read_urdf
