// Package pods makes pods from Linux network namespaces. Each has its own address on a bridge and, optionally, the
// nftables rules that redirect its TCP traffic to a sidecar, as the init container of a mesh writes them. It needs no
// root, no container runtime and no ip or iptables binary.
//
// Enter runs the program again inside a user, PID and network namespace. There NewNetwork makes the bridge and
// Network.Add the pods. Listeners that were opened before Enter stay in the outer network. The inner program inherits
// and relays them to addresses of the pods, so a shell outside reaches the pods. When the inner program ends, the
// kernel ends every process that it started.
//
// The package knows nothing of Envoy except its two ports and its mark. The program inside owns the Network. Network
// and Pod may be used from any goroutine. The package runs one goroutine for each relayed listener and two for each
// relayed connection. They end with the context of Relay.
package pods
