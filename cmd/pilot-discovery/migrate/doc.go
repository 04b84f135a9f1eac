// Package migrate has the command migrate, which says what differs when istiod-lite replaces istiod.
package migrate
