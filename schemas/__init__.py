"""JSON Schema 2020-12 of every manifest version, generated from the models."""
