// Package analyze has the commands analyze and validate, which print errors and likely mistakes in configuration.
package analyze
