//go:build !linux

package main

// releasePages does nothing: only Linux lets a program release the pages of its own file.
func releasePages() error { return nil }
