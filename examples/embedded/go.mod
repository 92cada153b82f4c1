module github.com/usmbridge/usmbridge/examples/embedded

go 1.26.0

require (
	github.com/kluctl/go-embed-python v0.0.0-3.14.6-20260610-1
	github.com/usmbridge/usmbridge v0.1.0
)

require (
	github.com/gofrs/flock v0.13.0 // indirect
	github.com/sirupsen/logrus v1.9.4 // indirect
	github.com/x448/float16 v0.8.4 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/sys v0.46.0 // indirect
)
