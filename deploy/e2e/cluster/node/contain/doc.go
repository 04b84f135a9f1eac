// Package contain gives a process a root directory of its own, as a container has: the system's libraries, /proc and
// /dev, and files and folders that are bound to paths in it. The folder run has the program that does it and then
// becomes the container's. It needs the rights of root in a user namespace alone.
package contain
