# forward_sm80_latency's compiled kernels: one for each row of kConfigs
# (config.hpp) and type. instances.cpp makes the list of them a table.
set(small80_configs 4)
set(small80_generated ${CMAKE_CURRENT_BINARY_DIR}/generated/forward_sm80/latency)
set(small80_declarations "")
set(small80_entries "")
set(type_Fp16 f16)
set(type_Bf16 bf16)
math(EXPR small80_last_config "${small80_configs} - 1")
foreach(INSTANCE_ELEMENT Fp16 Bf16)
  foreach(INSTANCE_CONFIG RANGE ${small80_last_config})
    string(TOLOWER "small80_${INSTANCE_ELEMENT}_config${INSTANCE_CONFIG}" INSTANCE_NAME)
    set(source ${small80_generated}/${INSTANCE_NAME}.cu)
    configure_file(forward_sm80/latency/instance.cu.in ${source} @ONLY)
    flashcore_cuda_sources(forward_sm80_latency LISTED GROUP config${INSTANCE_CONFIG} SOURCES ${source})
    if(flashcore_cuda_compiled)
      string(APPEND small80_declarations "InstanceEntry ${INSTANCE_NAME}(bool whole);\n")
      foreach(whole false true)
        string(APPEND small80_entries
          "      {{InputType::${type_${INSTANCE_ELEMENT}}, ${INSTANCE_CONFIG}, ${whole}}, ${INSTANCE_NAME}(${whole})},\n")
      endforeach()
    endif()
  endforeach()
endforeach()
configure_file(forward_sm80/latency/instance_list.hpp.in ${small80_generated}/instance_list.hpp @ONLY)

target_sources(flashcore_objects PRIVATE forward_sm80/latency/instances.cpp)
set_source_files_properties(forward_sm80/latency/instances.cpp TARGET_DIRECTORY flashcore_objects
  PROPERTIES INCLUDE_DIRECTORIES ${small80_generated})
