package charts

import "embed"

// Schemas has the file NAME/values.schema.json of each chart.
//
//go:embed */values.schema.json
var Schemas embed.FS

// Values has the file NAME/values.yaml of each chart.
//
//go:embed */values.yaml
var Values embed.FS
