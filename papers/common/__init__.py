"""What entries of several sources share."""
