// Package ui tests the live page of pilot/ui in a real browser, headless, against a real server with simulated proxies,
// and makes the screenshots of the documentation. `make ui` runs it, by the build tag browser: it needs Chromium,
// which CI does not have.
package ui
