// This file lets the package declare functions whose bodies are the runtime's.
