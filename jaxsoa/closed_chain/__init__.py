"""Closed chains: arms that grasp an object, and loops of any kind in any tree."""

from jaxsoa.closed_chain.contacts import (
    Contact as Contact,
)
from jaxsoa.closed_chain.contacts import (
    Custom as Custom,
)
from jaxsoa.closed_chain.contacts import (
    Hinge as Hinge,
)
from jaxsoa.closed_chain.contacts import (
    Point as Point,
)
from jaxsoa.closed_chain.contacts import (
    Rigid as Rigid,
)
from jaxsoa.closed_chain.contacts import (
    SoftFinger as SoftFinger,
)
from jaxsoa.closed_chain.grasp import (
    Arm as Arm,
)
from jaxsoa.closed_chain.grasp import (
    GraspState as GraspState,
)
from jaxsoa.closed_chain.grasp import (
    GraspSystem as GraspSystem,
)
from jaxsoa.closed_chain.grasp import (
    RigidBody as RigidBody,
)
from jaxsoa.closed_chain.grasp import (
    check_grasp as check_grasp,
)
from jaxsoa.closed_chain.grasp import (
    grasp_state as grasp_state,
)
from jaxsoa.closed_chain.grasp_dynamics import (
    GraspAcceleration as GraspAcceleration,
)
from jaxsoa.closed_chain.grasp_dynamics import (
    grasp_forward_dynamics as grasp_forward_dynamics,
)
