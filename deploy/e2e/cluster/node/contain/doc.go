// Package contain gives a process its own root directory, as a container has: the system's libraries, /proc and /dev,
// and files and folders that are bound to paths in it. The program in the folder run builds the root directory and then
// becomes the container's program. It only needs the rights of root in a user namespace.
package contain
