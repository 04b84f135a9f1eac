// Package mongo is the feature of ports that speak MongoDB's protocol: their statistics. It is pure.
package mongo
