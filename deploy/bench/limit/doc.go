// Command limit is the least that any Go server could do for a fleet of proxies. It takes bytes from a feeder and sends
// them to all its clients. It translates, compares, decides and encodes nothing, so its CPU and memory are the costs of
// gRPC and the kernel. Its latencies include the latencies of the server that it copies.
//
// With -feed it is that feeder, a separate process whose work is not measured. The feeder connects to a control plane
// as one sidecar and drops messages that repeat the last one. With -vhds it splits virtual hosts from their routes. It
// passes everything else on as encoded. State-of-the-world clients get all resources of a type unless they name
// resources; then they get the changed ones. A request that repeats the last names is an acknowledgement.
//
// It is correct only for measuring, because every client is sent what the one sidecar is sent. Either process listens
// once it has that state. The stream of a client runs two goroutines, which share only its queue. The hub's lock guards
// the hub and all queues. The feeder has its own lock.
package main
