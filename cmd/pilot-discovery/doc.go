// Command pilot-discovery is the control plane: `discovery` serves it; `validate` and `translate` run the same code once, over a directory; `request`
// asks a running one; `load` connects simulated proxies to one; `version` says which this is.
//
// Flags in, Options out, nothing else. This is the only place that reads the environment, and only for the defaults of flags.
package main
