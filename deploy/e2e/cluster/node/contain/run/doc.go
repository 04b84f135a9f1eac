// Command run becomes the command of a container, in the container's root directory. It is started in a mount namespace
// of its own, with what the package contain reads in its environment.
package main
