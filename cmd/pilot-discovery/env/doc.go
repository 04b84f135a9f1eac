// Package env reads environment variables as the defaults of flags. It also knows the variables of istiod that have no
// effect here.
package env
