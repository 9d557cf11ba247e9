// placeholder, replaced by the control plane
