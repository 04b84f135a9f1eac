// Command run becomes the command of a container, in the container's root directory. It is started in its own mount
// namespace, with the environment of the package contain.
package main
