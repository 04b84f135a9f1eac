// Package translate has the command translate, which prints what a proxy would be sent.
package translate
