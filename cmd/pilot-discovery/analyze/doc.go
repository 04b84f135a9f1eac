// Package analyze has the commands analyze and validate, which print what is wrong with configuration.
package analyze
