// Package inject has the command inject, which adds proxies to a manifest.
package inject
