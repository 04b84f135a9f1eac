// Package installed starts clusters for tests: with the custom resources alone, or with the charts installed, and then
// servers as the chart's Deployment would start them. A World belongs to one test, and ends with it.
package installed
