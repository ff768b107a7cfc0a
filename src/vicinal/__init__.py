"""vicinal: metric learning in which hardness is a quantity one can see and steer."""
