package must

// TB is what Succeed needs of a testing.TB or a rapid.TB.
type TB interface{ Fatal(args ...any) }

// Succeed ends the test with err, unless err is nil.
func Succeed(t TB, err error) {
	if h, ok := t.(interface{ Helper() }); ok {
		h.Helper()
	}
	if err != nil {
		t.Fatal(err)
	}
}
