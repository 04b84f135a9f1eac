// Package request has the command request, which prints a page of a server.
package request
