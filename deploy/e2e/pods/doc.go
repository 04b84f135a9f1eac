// Package pods makes pods out of Linux network namespaces: each has an address of its own on a bridge and, if asked
// for, the nftables rules that hand its TCP traffic to a sidecar, as the init container of a mesh does. It needs no
// root, no container runtime and no ip or iptables binary.
//
// Enter runs the program again inside a user, PID and network namespace; there NewNetwork makes the bridge and
// Network.Add the pods. Listeners that were opened before entering stay in the outer network and are handed to the
// inner program, which relays them to addresses of the pods: that is how a shell outside reaches them. When the inner
// program ends, however it ends, the kernel ends every process it started.
//
// It knows nothing of Envoy but its two ports and its mark. A Network is owned by the program inside; Network and Pod
// may be used from any goroutine. The package runs one goroutine for each relayed listener and two for each relayed
// connection; they end with the context given to Relay.
package pods
