// Command meshecho is the application of the Gateway API's conformance tests for meshes. It replaces the image
// echo-advanced. As server it answers HTTP, TLS, TCP and gRPC with its name and the request. As client it sends
// requests, and prints the answers line by line as the tests parse them.
package main
