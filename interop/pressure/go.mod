module github.com/usmbridge/usmbridge/interop/pressure

go 1.26.0

require (
	github.com/KimMachineGun/automemlimit v1.0.1
	github.com/stretchr/testify v1.12.1
	github.com/usmbridge/usmbridge v0.1.0
)

require (
	github.com/pbnjay/memory v0.0.0-20210728143218-7b4eea64cf58 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)
