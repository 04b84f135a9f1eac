package injector

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// renameFields gives the fields of a value, which is JSON of a type, the names that the type has for them. Templates
// and annotations may write them in any case, as Go's JSON takes them. A field that has its name already stays.
func renameFields(v any, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch v := v.(type) {
	case []any:
		if t.Kind() == reflect.Slice {
			for _, item := range v {
				renameFields(item, t.Elem())
			}
		}
	case map[string]any:
		if t.Kind() == reflect.Map {
			for _, item := range v {
				renameFields(item, t.Elem())
			}
		}
		if t.Kind() != reflect.Struct {
			return
		}
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" {
				renameFields(v, f.Type) // an embedded struct
				continue
			}
			if _, ok := v[name]; !ok {
				for _, key := range slices.Sorted(maps.Keys(v)) {
					if strings.EqualFold(key, name) {
						v[name] = v[key]
						delete(v, key)
						break
					}
				}
			}
			if value, ok := v[name]; ok {
				renameFields(value, f.Type)
			}
		}
	}
}
