// Command meshecho is the application of the Gateway API's conformance tests for meshes, in the place of the image
// echo-advanced: called server it answers by HTTP, TLS, TCP and gRPC who it is and what it was asked; called client it
// sends requests, and prints the answers line by line as the tests parse them.
package main
