// Package migrate has the command migrate, which says what differs when istiod-lite takes the place of istiod.
package migrate
