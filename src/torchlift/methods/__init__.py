"""Methods, one folder each: lift, recipe, mathematics."""
