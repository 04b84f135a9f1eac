package charts

import "embed"

// Schemas has the file NAME/values.schema.json of each chart.
//
//go:embed */values.schema.json
var Schemas embed.FS
